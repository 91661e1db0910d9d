"""Taking requests off the queue, and giving them back or finished: racing statements and the thin calls around them."""
