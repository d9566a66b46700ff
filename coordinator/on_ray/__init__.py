"""Workers that Ray places: extra `ray`."""
