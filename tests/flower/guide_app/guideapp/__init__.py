"""guideapp: a Flower app with numpy."""
