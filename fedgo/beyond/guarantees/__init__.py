"""What can be promised: intervals, certificates, and the guard."""
