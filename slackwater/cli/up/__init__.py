"""`slackwater up`: everything on one machine, each part a process of its own, none left when it ends."""
