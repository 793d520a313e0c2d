"""What people read: the table in the terminal, REPORT.md and SCOREBOARD.md, and whether those are current."""
