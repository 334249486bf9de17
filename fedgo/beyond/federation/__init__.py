"""A federation on clients of your own: a client and a server without a transport, and letters that are bytes."""
