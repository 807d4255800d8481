"""AWS's builds of vLLM for Trainium and Inferentia, by generation of the Neuron SDK."""
