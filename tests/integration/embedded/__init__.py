"""The servers that come with the product: started, killed, left behind, hindered."""
