"""The word lists of `corpus`."""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NOUNS = _words("""
    anchor basket bell boat bridge button candle carpet cat chair clock coat copper corner crown dog dragon eagle
    engine feather fiddle flame forest fox gate giant goat hammer hare hawk horse jacket jewel kite lake lantern
    lemon library lizard meadow mirror moon mountain needle oak orchard owl painter parrot pearl pencil pigeon
    pirate plum poppy puzzle rabbit ribbon robin rose saddle shadow ship sparrow spoon stable statue swan teapot
    thief tiger train trumpet turtle village wagon well wheel window wolf
""")

VERBS = _words("""
    admired avoided blessed bought called caught cleaned comforted counted crossed described drew escaped feared
    filled forgave found greeted guided helped hugged imitated joined kept kissed lifted measured met mixed named
    noticed offered painted pleased protected pushed remembered rescued searched shared sold stole studied tasted
    teased touched trusted warned watched woke
""")

ADJECTIVES = _words("""
    ancient awkward blue brave broken calm careful clever cold curious dark deep distant dusty early famous fat fond
    foolish friendly gentle golden gray green happy hidden honest humble idle jolly kind lazy lost loyal mad merry
    modest narrow noble odd pale patient polite proud quick rare rich ripe round rusty scarlet sharp shy silent
    simple slow smooth solemn steep stormy strong sweet tame thin tiny tired weak wide wise young
""")

ADVERBS = _words("""
    again barely briefly calmly clearly coldly early even fondly gladly honestly lately loudly merrily neatly nicely
    openly poorly quickly really sadly sharply simply slowly solemnly sternly suddenly twice weakly wisely
""")

NAMES = _words("""
    Ada Anna Bella Bruno Clara David Edgar Emil Felix Frank George Hector Henry Ida Isaac Jacob Jonas Katya Laura
    Lena Lucy Maria Max Mona Nora Oscar Paula Quinn Rita Rosa Ruth Selma Sonia Sven Thomas Ulla Vera Wanda Xenia
    Yusuf
""")

PLACES = _words("""
    Alder Ashford Bexhill Brackley Cloverdale Corby Eastvale Fairview Glenmore Greenfield Hazelton Holloway Kingsley
    Langley Lowell Marlow Moorland Norwood Oldbury Redcliff Rosedale Seabrook Silverton Stanmore Summerfield
    Underhill Waverly Whitby Windham Woodstock
""")
