-- `output_order` is 'input' or 'completion'; `webhook_metadata` comes back in every event of the batch.
ALTER TABLE batch ADD COLUMN output_order text NOT NULL DEFAULT 'input', ADD COLUMN webhook_metadata json;
-- The line numbers of a file whose lines stand in the order of completion, frozen with its bytes; null where they stand in input order.
ALTER TABLE output_index ADD COLUMN ordered integer[];
