"""What a stack costs a month, from dated prices; nothing here asks anybody."""
