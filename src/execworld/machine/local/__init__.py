"""The machine that this process itself runs on."""
