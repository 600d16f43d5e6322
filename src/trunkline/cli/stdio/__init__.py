"""`trunkline stdio`: stdin and stdout on one side, a gateway's `/mcp` on the other, messages as they came."""
