"""Who gets what: one policy per file, each a pure function; ``registry`` names them."""
