-- When the duties asked the holder of a lease that fell silent whether it is still there; its next heartbeat wipes it out.
ALTER TABLE lease ADD COLUMN called_at timestamptz;
