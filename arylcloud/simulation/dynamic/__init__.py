"""Dynamic pricing: what choosing the market, and choosing again each day, would have saved at past prices."""
