"""What two equal short answers share: the normalisers of published scores, and our `strict`."""
