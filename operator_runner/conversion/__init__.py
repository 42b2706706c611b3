"""The conversion webhook: converts objects between the versions of a kind, by watches.yaml.

Pure: `preserved_fields` and `converter` convert one object. I/O: `server` converts a whole
ConversionReview and serves the requests; `certificates` and `registrar` load certificates and
register them in the CRDs; `service` combines these.
"""
