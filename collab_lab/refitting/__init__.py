"""What is done and measured as soon as a model is changed, on the calibration sentences.

refit  output maps that make up for a change, kept where they lower the loss
rise   what the loss rises by, next to its price: warnings, and what may cause it
"""
