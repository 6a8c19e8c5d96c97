"""Files of the user as examples: images, tables, arrays, annotations. Errors name file and line."""
