"""Every figure and every empirical claim of Sakaya & Klami (UAI 2017), measured again with isvi."""
