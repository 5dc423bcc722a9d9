"""jmarl's worlds through the interfaces of other libraries: PettingZoo, Gymnasium, JaxMARL."""
