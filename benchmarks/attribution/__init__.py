"""Study of attribution: are answers attributed to the documents that they came from?"""
