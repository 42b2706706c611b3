"""The conversion webhook: the versions of a kind converted into each other, as watches.yaml says.

Pure: `field_paths`, `merging`, `preserved_fields` and `converter` turn one object into another
version, `review` a whole ConversionReview; `authority` decides about certificates. I/O: `server`
answers the API server; `certificates`, `shared` and `registration` make it trust the answer;
`webhook` joins them, and `service` builds it on the real parts.
"""
