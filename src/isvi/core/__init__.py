"""Types and helpers that everything else is written in: latents, coordinates, errors, files, compiling. What comes in
knows nothing about models, data or fits, and imports nothing of isvi outside this room."""
