"""The colour themes of the app, one TOML file each."""
