"""The demo model and ready cluster files, installed as package data; coordinator.demo finds them."""
