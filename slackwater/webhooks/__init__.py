"""Where subscribers want events: endpoints and their secrets, what a URL may name, how an event is signed and when it is tried again."""
