"""A million nodes and ten million edges: does a query, or opening, cost more than at 5,000?"""
