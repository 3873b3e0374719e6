"""Pictures of a run and of a model, a module each: PNG, small, without metadata."""
