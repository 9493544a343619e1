"""What has to hold on a device, GPU or CPU: for ``recipes/gpu_check.sh`` and ``pytest -m gpu``.

Every kind of heads of the table of variants is checked, whatever is added to it; plug-ins' are not.
"""
