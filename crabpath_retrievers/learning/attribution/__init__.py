"""Attribution: which of the returned documents an answer rests on."""
