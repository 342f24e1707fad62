"""The methods behind every door: parameters in, a result or an error out."""
