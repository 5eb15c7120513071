def draw(results, folder): pass
