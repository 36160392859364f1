"""Tools of agents over one world, and the one road that every call of them takes."""
