ALTER TABLE lease DROP COLUMN called_at;
