"""The parts of every Transformer. Shapes are nine letters, everywhere:

B batch · T queries · S keys · D width · H heads · G key/value heads · K head size · F hidden · V vocabulary
Images have three more: C channels · Y rows · X columns
"""
