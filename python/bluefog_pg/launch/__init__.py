"""How ranks start, find each other, make a group, and learn who they are."""
