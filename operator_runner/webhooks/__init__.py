"""The conversion webhook: the versions of a kind converted into each other, as watches.yaml says.

Pure: `fieldpaths`, `merging`, `keeping` and `converter` turn one object into another version,
`review` a whole ConversionReview; `authority` decides about certificates. I/O: `server` answers
the API server, `certificates`, `shared` and `registration` see to it that it can trust the
answer, `webhook` puts them together.
"""
