"""Ways to reach a world; one package each, which imports its SDK only when a world is opened."""
