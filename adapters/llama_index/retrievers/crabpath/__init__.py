"""CrabPath in LlamaIndex: a retriever, a node post-processor and outcome events."""
