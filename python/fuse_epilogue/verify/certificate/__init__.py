"""The claims of an epilogue's certificate, each proved again from the two functions.

- :mod:`.forms`: what the fields of a certificate may hold.
- :mod:`.subject`, :mod:`.tree`, :mod:`.views`, :mod:`.between`, :mod:`.skeleton`,
  :mod:`.regions`: what the functions are made of.
- :mod:`.value_terms`, :mod:`.partial`, :mod:`.ranges`, :mod:`.standing`: what claims speak of.
- ``claim_*``: the claims.
"""
