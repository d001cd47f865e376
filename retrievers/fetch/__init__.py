"""The field's corpus and indexes from the Hugging Face hub."""
