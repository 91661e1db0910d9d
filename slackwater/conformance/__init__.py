"""Named checks of the OpenAI Files, Uploads and Batches wire, for any server. Nothing here imports a server."""
