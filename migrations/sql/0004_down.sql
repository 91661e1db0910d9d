ALTER TABLE output_index DROP COLUMN ordered;
ALTER TABLE batch DROP COLUMN output_order, DROP COLUMN webhook_metadata;
