"""Price APIs of three clouds, in their own wire formats, of realistic size, with their bad habits."""
