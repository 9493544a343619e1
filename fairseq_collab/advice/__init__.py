"""From a trained model and a wish to the smaller model that costs least quality, and why."""
