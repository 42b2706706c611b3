"""The conversion webhook: converts objects between the versions of a kind, by watches.yaml.

Pure: `field_paths`, `merging`, `preserved_fields` and `converter` convert one object, `review` a
whole ConversionReview; `registration` and `schemas` evaluate CRDs. I/O: `server` serves the
requests; `certificates` and `registrar` load certificates and register them in the CRDs; `webhook`
combines these, and `service` creates it with the real parts.
"""
