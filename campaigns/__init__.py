"""campaigns"""
