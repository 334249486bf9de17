"""How the advice was found out: the regime map, libraries, sites that differ, and hiding."""
