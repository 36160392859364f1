"""Search by name and by content: one answer, whatever programs a world has."""
