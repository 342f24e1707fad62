"""The methods of the native dialect, by what they are about."""
